"""Tests of what the HTML pages share."""
