"""Pictures of fitted models: densities, ellipses, responsibilities, profiles, confusions, networks,
reliability, choosing k."""

from probml.models.pictures.fitted import calibration as calibration
from probml.models.pictures.fitted import choosing as choosing
from probml.models.pictures.fitted import comparison as comparison
from probml.models.pictures.fitted import confusion as confusion
from probml.models.pictures.fitted import density as density
from probml.models.pictures.fitted import ellipses as ellipses
from probml.models.pictures.fitted import profile as profile
from probml.models.pictures.fitted import responsibilities as responsibilities
from probml.models.pictures.network_pictures import draw_network as draw_network
from probml.models.pictures.reliability_pictures import reliability as reliability
