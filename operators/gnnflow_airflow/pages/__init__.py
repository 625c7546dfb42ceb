"""Pages of workspaces in Airflow: runs, comparisons, predictions, trainings, and models to promote.

Read `app.py` first (the addresses), then `access.py` (the signed-in user and permissions), `contents.py` (reads a
workspace, and nothing outside it), `predictions.py` (decodes Parquet in a process of bounded memory) and `views.py`
(templates, and headers that seal a report from Airflow).
"""
