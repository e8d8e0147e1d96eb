# Generated from _async/__init__.py by tools/unasync.py. Do not edit.
"""The client."""
