"""Jobs of many ranks: what a rank's file comes to (a partial), and the merge of all of them."""
