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

{{- define "gnnflow.schedulerHost" -}}
{{- printf "%s-dask-scheduler.%s" .Release.Name .Release.Namespace }}
{{- end }}

{{- define "gnnflow.schedulerAddress" -}}
{{- printf "%s://%s:8786" (ternary "tls" "tcp" (not (empty .Values.tls.existingSecret))) (include "gnnflow.schedulerHost" .) }}
{{- end }}

{{/* Where a pod finds the files of a Secret of certificates: Airflow's pods mount it at the same path. */}}
{{- define "gnnflow.tlsFolder" -}}
/etc/dask-tls
{{- end }}

{{- define "gnnflow.ownFolders" -}}
{{- $folders := list }}
{{- if .Values.ownFiles.configMap }}{{ $folders = append $folders "/opt/own/files" }}{{ end }}
{{- if .Values.ownFiles.git.repository }}
{{- $folders = append $folders (trimSuffix "/" (printf "/opt/own/git/current/%s" .Values.ownFiles.git.folder)) }}
{{- end }}
{{- join ":" $folders }}
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

{{/* Pods that a policy lets in, from a list of {podLabels, namespaceLabels}. */}}
{{- define "gnnflow.peers" -}}
{{- range . }}
- podSelector:
    matchLabels:
      {{- toYaml .podLabels | nindent 6 }}
  {{- with .namespaceLabels }}
  namespaceSelector:
    matchLabels:
      {{- toYaml . | nindent 6 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Rules of egress to what networkPolicy.egress lists. */}}
{{- define "gnnflow.storage" -}}
{{- range .Values.networkPolicy.egress }}
- to:
    - ipBlock:
        cidr: {{ .cidr }}
        {{- with .except }}
        except: {{ toJson . }}
        {{- end }}
  ports:
    {{- range .ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- end }}
