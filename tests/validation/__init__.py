"""Tables that compare predictions of the course with published or independent numbers. Maintainers run them."""
