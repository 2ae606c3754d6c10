"""Ways into other libraries. Nothing here is imported by fa4_cute itself."""
