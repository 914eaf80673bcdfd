"""Reports of results: one HTML page that needs nothing else, or the same in Markdown."""

from .contents import contents
from .html import html
from .markdown import markdown
from .sources import Results, read
from .verdict import verdict

__all__ = ["Results", "contents", "html", "markdown", "read", "verdict"]
