{{/* Names and labels. Every object is <release>-<what>, so that Airflow's values can name them too. */}}

{{- define "gnnflow.serviceAccount" -}}
{{- if .Values.serviceAccount.name }}{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create }}{{ .Release.Name }}-gnnflow
{{- else }}default{{ end }}
{{- end }}

{{- define "gnnflow.claim" -}}
{{- .Values.workspace.volume.existingClaim | default (printf "%s-workspace" .Release.Name) }}
{{- end }}

{{- define "gnnflow.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{- define "gnnflow.schedulerAddress" -}}
{{- printf "tcp://%s-dask-scheduler.%s:8786" .Release.Name .Release.Namespace }}
{{- end }}

{{/* Labels that select pods; they never change. (dict "root" $ "component" "dask-worker") */}}
{{- define "gnnflow.selector" -}}
app.kubernetes.io/name: gnnflow
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "gnnflow.labels" -}}
{{ include "gnnflow.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}
