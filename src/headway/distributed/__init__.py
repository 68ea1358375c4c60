"""Several processes that train one model: how they find each other, and who starts and watches them."""
