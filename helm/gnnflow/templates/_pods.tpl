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
{{- with .affinity }}
affinity:
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

{{/* (dict "root" $ "group" .Values.workers): of the scheduler, a group of workers, or of none of them */}}
{{- define "gnnflow.mounts" -}}
- {name: scratch, mountPath: /tmp}
{{- if eq .root.Values.workspace.kind "volume" }}
- {name: workspace, mountPath: /workspace}
{{- end }}
{{- if .root.Values.tls.existingSecret }}
- {name: tls, mountPath: {{ include "gnnflow.tlsFolder" . }}, readOnly: true}
{{- end }}
{{- if and .group .root.Values.ownFiles.configMap }}
- {name: own-files, mountPath: /opt/own/files, readOnly: true}
{{- end }}
{{- if and .group .root.Values.ownFiles.git.repository }}
- {name: own-git, mountPath: /opt/own/git, readOnly: true}
{{- end }}
{{- with .group }}
{{- with .extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "scratch" "1Gi" "group" .Values.workers) */}}
{{- define "gnnflow.volumes" -}}
- name: scratch
  emptyDir:
    sizeLimit: {{ .scratch }}
{{- if eq .root.Values.workspace.kind "volume" }}
- name: workspace
  persistentVolumeClaim:
    claimName: {{ include "gnnflow.claim" .root }}
{{- end }}
{{- with .root.Values.tls.existingSecret }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- if .group }}
{{- with .root.Values.ownFiles.configMap }}
- name: own-files
  configMap: {name: {{ . }}}
{{- end }}
{{- if .root.Values.ownFiles.git.repository }}
- name: own-git
  emptyDir:
    sizeLimit: {{ .root.Values.ownFiles.git.size }}
{{- with .root.Values.ownFiles.git.existingSecret }}
- name: git-secret
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- with .group.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Brings the repository of ownFiles.git before the pod's container starts: a module is imported once. */}}
{{- define "gnnflow.initContainers" -}}
{{- with .Values.ownFiles.git }}
{{- if .repository }}
{{- if or (empty .revision) (eq .revision "HEAD") }}
{{- fail "ownFiles.git.revision names no tag or commit: HEAD and branches move, so pods that start later would have other code." }}
{{- end }}
initContainers:
  - name: own-git
    image: {{ .image }}
    imagePullPolicy: {{ $.Values.image.pullPolicy }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    args:
      - --one-time
      - --depth=1
      - --root=/opt/own/git
      - --link=current
      - --repo={{ .repository }}
      - --ref={{ .revision }}
      {{- if .existingSecret }}
      - --password-file=/etc/git-secret/password
      {{- end }}
    env:
      - {name: HOME, value: /tmp}
      {{- with .existingSecret }}
      - name: GITSYNC_USERNAME
        valueFrom: {secretKeyRef: {name: {{ . }}, key: username}}
      {{- end }}
    resources:
      requests: {cpu: 100m, memory: 128Mi}
      limits: {cpu: 500m, memory: 512Mi}
    volumeMounts:
      - {name: scratch, mountPath: /tmp}
      - {name: own-git, mountPath: /opt/own/git}
      {{- if .existingSecret }}
      - {name: git-secret, mountPath: /etc/git-secret, readOnly: true}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* How fast a group of workers grows and shrinks. */}}
{{- define "gnnflow.scaling" -}}
scaleUp:
  policies:
    - {type: Percent, value: 100, periodSeconds: 30}
scaleDown:
  # Rounds alternate between computing and waiting: a short pause is no reason to go.
  stabilizationWindowSeconds: {{ .autoscaling.scaleDownAfterSeconds }}
  policies:
    - {type: Pods, value: 1, periodSeconds: 60}
{{- end }}
