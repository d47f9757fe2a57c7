{{- define "hamiacct.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- /* A release may have dots in its name, a Service may not. */ -}}
{{- $name | replace "." "-" | trunc 45 | trimSuffix "-" -}}
{{- end }}

{{- define "hamiacct.secret" -}}
{{- .Values.secret.existing | default (include "hamiacct.name" .) -}}
{{- end }}

{{- define "hamiacct.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "hamiacct.has-redis" -}}
{{- if and .Values.worker.enabled (or .Values.secret.existing .Values.secret.redisUrl) }}yes{{ end }}
{{- end }}

{{/* Labels of one part of the service: (dict "root" $ "part" "web"). */}}
{{- define "hamiacct.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "hamiacct.labels" -}}
{{ include "hamiacct.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* Names under which the web process may be called; the pod's own address is for Prometheus. */}}
{{- define "hamiacct.hosts" -}}
{{- $name := include "hamiacct.name" . -}}
{{- $hosts := list "localhost" "$(POD_IP)" -}}
{{- range $service := list $name (printf "%s-webhook" $name) -}}
{{- $hosts = concat $hosts (list $service (printf "%s.%s" $service $.Release.Namespace) (printf "%s.%s.svc" $service $.Release.Namespace)) -}}
{{- end -}}
{{- if .Values.web.ingress.host }}{{ $hosts = append $hosts .Values.web.ingress.host }}{{ end -}}
{{- join "," (concat $hosts .Values.allowedHosts) -}}
{{- end }}

{{/* The environment of every process. */}}
{{- define "hamiacct.environment" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: HAMIACCT_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ include "hamiacct.secret" . }}, key: database-url}}
- name: HAMIACCT_SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ include "hamiacct.secret" . }}, key: secret-key}}
- name: HAMIACCT_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "hamiacct.secret" . }}, key: redis-url, optional: true}}
- name: HAMIACCT_BOOTSTRAP_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "hamiacct.secret" . }}, key: bootstrap-token, optional: true}}
- name: HAMIACCT_ALLOWED_HOSTS
  value: {{ include "hamiacct.hosts" . | quote }}
{{- if .Values.deviceConfig }}
- name: HAMIACCT_DEVICE_CONFIG
  value: /etc/hamiacct/device-config.yaml
{{- end }}
{{- if .Values.scheduler.enabled }}
- name: HAMIACCT_SCHEDULER_MODE
  value: "1"
{{- end }}
{{- if and .Values.monitoring.serviceMonitor (not .Values.monitoring.tokenSecret) (not (hasKey .Values.settings "METRICS_OPEN")) }}
- name: HAMIACCT_METRICS_OPEN
  value: "1"
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: HAMIACCT_{{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* What every pod has: (dict "root" $ "part" "web"). */}}
{{- define "hamiacct.pod-metadata" -}}
labels:
  {{- include "hamiacct.labels" . | nindent 2 }}
annotations:
  checksum/settings: {{ list .root.Values.secret .root.Values.settings .root.Values.deviceConfig | toJson | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "hamiacct.pod" -}}
# Kubernetes would name our own Services in variables that look like settings of ours.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- if .root.Values.affinity }}
  {{- toYaml .root.Values.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "hamiacct.selector" . | nindent 14 }}
  {{- end }}
{{- end }}

{{/* What every container has, its environment apart. */}}
{{- define "hamiacct.container" -}}
image: {{ include "hamiacct.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "hamiacct.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.deviceConfig }}
- {name: device-config, mountPath: /etc/hamiacct/device-config.yaml, subPath: device-config.yaml, readOnly: true}
{{- end }}
{{- end }}

{{- define "hamiacct.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if .Values.deviceConfig }}
- name: device-config
  configMap: {name: {{ include "hamiacct.name" . }}}
{{- end }}
{{- end }}
