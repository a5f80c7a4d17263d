"""Backends that come with the library. Each is a module of its own, which `import eagerdecomp` does not import."""
