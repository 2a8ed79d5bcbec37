"""The questions that a page can ask of a profile: one a module, found by name; nothing else lists them."""
