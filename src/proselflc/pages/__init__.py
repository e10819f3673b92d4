"""Parts of HTML pages: drawings, tables, thumbnails and values."""
