"""How models and fits look: in a notebook, and on a page of their own."""
