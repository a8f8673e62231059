"""Pictures as numbers and as text: layouts of graphs, scenes, SVG, HTML."""
