"""Jobs of many ranks: the statistics of each rank's file (a partial), and the merge of all partials."""
