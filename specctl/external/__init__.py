"""Other engines: the same target and method as their command line, and what old flags mean."""
