"""Raw recordings of our own, as the recorder writes them."""
