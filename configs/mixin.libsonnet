// The alerts, rules and dashboards as a monitoring mixin, for who deploys with jsonnet:
//
//   local training = (import 'configs/mixin.libsonnet') + {
//     _config+:: { runbookPrefix: 'https://runbooks.example.org/' },
//   };
//   { 'alerts.json': training.prometheusAlerts, 'rules.json': training.prometheusRules }
//   + training.grafanaDashboards
//
// The files themselves are the source: prometheus/alerts.yml, prometheus/recording.yml, grafana/dashboards/*.json.
{
  _config:: {
    // The name of the scrape job, as alerts on missing trackers ask for it.
    job: 'tracker',
    // Comes before docs/runbooks/NAME.md in every alert.
    runbookPrefix: '',
    // Added to what the dashboards have.
    dashboardTags: [],
  },

  local config = self._config,
  local selected(expr) = std.strReplace(expr, 'job="tracker"', 'job="%s"' % config.job),

  prometheusAlerts:: {
    groups: [
      group {
        rules: [
          rule {
            expr: selected(rule.expr),
            annotations+: { runbook_url: config.runbookPrefix + rule.annotations.runbook_url },
          }
          for rule in group.rules
        ],
      }
      for group in std.parseYaml(importstr 'prometheus/alerts.yml').groups
    ],
  },

  prometheusRules:: std.parseYaml(importstr 'prometheus/recording.yml'),

  grafanaDashboards:: {
    [file.name]: file.body { tags+: config.dashboardTags }
    for file in [
      { name: 'training-run.json', body: import 'grafana/dashboards/training-run.json' },
      { name: 'training-fleet.json', body: import 'grafana/dashboards/training-fleet.json' },
      { name: 'tracker-health.json', body: import 'grafana/dashboards/tracker-health.json' },
    ]
  },
}
