"""DLProf's view of a trace: its op names and ids, its rules of aggregation, and the tables of its reports."""
