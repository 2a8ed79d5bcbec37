"""Programs and traces with planted causes, whose truths are written before opscope sees them."""
