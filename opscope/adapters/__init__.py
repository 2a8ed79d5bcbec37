"""One framework a file or folder: what is hooked, what is emitted, how it is undone."""
