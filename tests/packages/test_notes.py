"""Release notes are cut from the changelog."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "packaging"))
from release.notes import notes, notes_of_build  # noqa: E402

CHANGELOG = """# Changelog

About this file.

## Unreleased

### Added
- A door.

## [0.2.0] - 2026-11-01

### Fixed
- A window.
### Added
- ## is no heading inside of a line.

## 0.1.0
- A house.

## 0.0.1
"""


class Notes(unittest.TestCase):
    def test_a_version_has_its_section_alone(self):
        expected = "# Stead 0.2.0\n\n### Fixed\n- A window.\n### Added\n- ## is no heading inside of a line.\n"
        self.assertEqual(notes(CHANGELOG, "0.2.0"), expected)
        self.assertEqual(notes(CHANGELOG, "0.1.0"), "# Stead 0.1.0\n\n- A house.\n")

    def test_what_is_not_released_is_called_so(self):
        expected = "# Stead, not released yet\n\n### Added\n- A door.\n"
        self.assertEqual(notes(CHANGELOG, "Unreleased"), expected)
        # A build between two versions has the number of neither.
        self.assertEqual(notes_of_build(CHANGELOG, "0.3.0"), expected)
        self.assertIn("# Stead 0.1.0", notes_of_build(CHANGELOG, "0.1.0"))

    def test_a_version_without_a_section_or_a_text_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no section 0.3.0, only Unreleased, 0.2.0, 0.1.0, 0.0.1"):
            notes(CHANGELOG, "0.3.0")
        with self.assertRaisesRegex(ValueError, "section 0.0.1 of CHANGELOG.md is empty"):
            notes(CHANGELOG, "0.0.1")

    def test_the_script_reads_the_changelog_of_the_project(self):
        script = ROOT / "packaging/release/notes.py"
        done = subprocess.run([script, "Unreleased"], capture_output=True, text=True, check=True)
        self.assertTrue(done.stdout.startswith("# Stead, not released yet\n\n### "), done.stdout[:80])
        done = subprocess.run([script, "9.9.9"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("notes: CHANGELOG.md has no section 9.9.9", done.stderr)


unittest.main()
