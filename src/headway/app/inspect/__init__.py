"""`headway inspect`: what the page of `headway look` shows, and more, as numbers.  A file for each subject."""
