"""The machinery of the course: the exercise checker, the command line, JupyterLab, learners' folders, grading."""
