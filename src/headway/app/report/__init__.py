"""What a run leaves for people: measured once more, told on a page and on a card."""
