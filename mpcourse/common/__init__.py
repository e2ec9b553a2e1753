"""What several rooms share: errors, files, mpirun, and what a measured figure depends on."""
