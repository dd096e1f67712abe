"""Render the result of a benchmark as one self-contained page.

The parts (templates, stylesheet, charts) depend only on the result, so that another page can use them.
"""

from tailrace.report.page import read_result, render_report, write_report

__all__ = ["read_result", "render_report", "write_report"]
