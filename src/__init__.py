"""adrbench: architecture decision records whose tables are measured, not remembered.

Imported as ``adrbench`` through the link ``pythonpath/adrbench``; put ``pythonpath`` on
PYTHONPATH and nothing has to be installed into an interpreter, which is what lets the same
code run inside a vendor's vLLM image.
"""

__version__ = "0.1.0"
