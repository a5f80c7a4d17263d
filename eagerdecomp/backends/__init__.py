"""Backends that come with the library, each a module that is loaded on use: nothing of them is imported with the library."""
