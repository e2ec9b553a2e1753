"""Grade a class: every student's answers, checked in parallel, each by itself in a sandbox."""
