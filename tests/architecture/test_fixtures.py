"""Golden files come from the past: none is missing, edited or unlisted."""

import hashlib
import json
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"
NOT_GOLDEN = {"MANIFEST.json", "README.md", "write.py"}


def test_the_manifest_lists_every_golden_file_and_its_bytes():
    listed = json.loads((FIXTURES / "MANIFEST.json").read_text())["files"]
    found = {
        str(path.relative_to(FIXTURES)): {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
        }
        for path in FIXTURES.rglob("*")
        if path.is_file() and path.name not in NOT_GOLDEN and path.suffix != ".pyc"
    }
    assert found == listed
