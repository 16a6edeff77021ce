"""Exact matrix products by residues (Ozaki scheme II), rounded once."""
