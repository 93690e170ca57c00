"""Documents as text: PDF, Word, PowerPoint, Excel, EPUB and HTML as Markdown, read in worker processes."""
