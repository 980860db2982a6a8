"""Pure views: what the screen knows goes in, rows of styled segments come out. Nothing here keeps state or draws."""
