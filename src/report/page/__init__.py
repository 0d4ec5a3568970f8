"""The page: decisions, figures, tables and claims of a platform in one self-contained HTML file."""
