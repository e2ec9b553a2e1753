"""The kernel of lessons: IPython's, which gives Python's version as "3"."""

from ipykernel.ipkernel import IPythonKernel


class LessonKernel(IPythonKernel):
    """A kernel that JupyterLab writes the same of into a lesson, whichever Python a learner has.

    JupyterLab writes what a kernel says of its language into each notebook that it opens. With the exact version of
    Python in it, a lesson would count as changed as soon as it is open.
    """

    language_info = IPythonKernel.language_info | {"version": "3"}
