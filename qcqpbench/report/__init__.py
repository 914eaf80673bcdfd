"""Reports of results: one HTML page that needs nothing else, or the same in Markdown."""

from .contents import contents
from .html import KIND as HTML
from .html import html
from .markdown import KIND as MARKDOWN
from .markdown import markdown
from .sources import Results, read
from .verdict import verdict

__all__ = ["HTML", "MARKDOWN", "Results", "contents", "html", "markdown", "read", "verdict"]
