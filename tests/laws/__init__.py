"""The laws of DESIGN as functions that raise AssertionError, for any compactor, format and pass.

`subject.py` says how a compactor is run, `laws.py` has a function a law, `trial_passes.py` has
passes that exercise every kind of edit. A new pass is added to SUBJECTS, a new format to the
strategies; test_laws.py runs every law with each of them, and test_laws_can_fail.py plants a
violation of every law and sees it caught.
"""
