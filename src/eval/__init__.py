"""Accuracy of an arm: four task classes, asked by OpenCompass against the served endpoint, scored per sample."""
