"""Reports: tables and figures from run folders. Imports neither torch nor engines.

The package is what `offbeat.report([run, other], "page.html")` calls, too: `offbeat.report.pages.build.report`.
"""

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _Report(ModuleType):
    """A package and a function of one name: importing the one must not hide the other."""

    @property
    def __signature__(self) -> Signature:
        """What `help` and notebooks show."""
        from offbeat.report.pages.build import report

        return signature(report)

    def __call__(self, *args: Any, **options: Any) -> Any:
        from offbeat.report.pages.build import report

        return report(*args, **options)


sys.modules[__name__].__class__ = _Report
