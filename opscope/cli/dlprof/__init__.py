"""``opscope dlprof``: DLProf's command line, switch by switch, over opscope's capture and reports."""
