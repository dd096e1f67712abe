"""From one result of a benchmark to one page that needs nothing else.

The parts (templates, stylesheet, charts) know only the JSON of a result, so that another page can be made of them.
"""

from tailrace.report.page import read_result, render_report, write_report

__all__ = ["read_result", "render_report", "write_report"]
