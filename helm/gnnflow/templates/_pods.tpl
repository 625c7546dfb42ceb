{{/* What every pod has: no root, no token, nothing writable but /tmp and the workspace. */}}

{{- define "gnnflow.podDefaults" -}}
serviceAccountName: {{ include "gnnflow.serviceAccount" . }}
automountServiceAccountToken: false
# Kubernetes would set DASK_…_PORT variables for each Service, and Dask reads DASK_* as configuration.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ int64 .Values.podSecurity.user }}
  runAsGroup: {{ int64 .Values.podSecurity.group }}
  fsGroup: {{ int64 .Values.podSecurity.group }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Where a pod may run: of the scheduler or of a group of workers. */}}
{{- define "gnnflow.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "gnnflow.containerDefaults" -}}
image: {{ include "gnnflow.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - configMapRef:
      name: {{ .Release.Name }}-environment
  {{- with .Values.workspace.bucket.existingSecret }}
  - secretRef:
      name: {{ . }}
  {{- end }}
  {{- range .Values.environmentSecrets }}
  - secretRef:
      name: {{ . }}
  {{- end }}
{{- end }}

{{- define "gnnflow.mounts" -}}
- {name: scratch, mountPath: /tmp}
{{- if eq .Values.workspace.kind "volume" }}
- {name: workspace, mountPath: /workspace}
{{- end }}
{{- end }}

{{/* (dict "root" $ "scratch" "1Gi") */}}
{{- define "gnnflow.volumes" -}}
- name: scratch
  emptyDir:
    sizeLimit: {{ .scratch }}
{{- if eq .root.Values.workspace.kind "volume" }}
- name: workspace
  persistentVolumeClaim:
    claimName: {{ include "gnnflow.claim" .root }}
{{- end }}
{{- end }}
