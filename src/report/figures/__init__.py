"""Figures: one Vega-Lite chart each, as SVG and CSV, and for the page as a specification with its rows."""
