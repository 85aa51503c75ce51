"""Golden files of all writers × readers: what each reader makes of each file. Torch-free.

Readers are child processes, some of other Pythons, so that a crash is an outcome like others.
"""

from aoserial.report.matrix import Matrix, Reading, Row, read_all
from aoserial.report.page import page
from aoserial.report.summary import lines, markdown

__all__ = ["Matrix", "Reading", "Row", "lines", "markdown", "page", "read_all"]
