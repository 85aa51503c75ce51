collect_ignore_glob = ["annotated/*", "listed/*", "program.py"]  # run as programs of their own
