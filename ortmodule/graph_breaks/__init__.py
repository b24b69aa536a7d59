"""A module in parts, where no whole capture can be.

Dynamo cuts forward where Python is needed; each graph between two cuts is captured and run like a
module of its own. What Dynamo's guards do not see is looked at here, or ends a graph. A module
whose submodules communicate is cut at these instead.
Imports what capture imports, and capture.
"""
